-- A4: no balance is below minus the credit limit

-- Fault: balance is below minus the credit limit
SELECT tenant_id, balance, credit_limit FROM wallet WHERE balance::numeric + credit_limit < 0;
